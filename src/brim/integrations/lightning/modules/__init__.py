"""LightningModules in brim's loop.

In come a module, its loaders or data module and settings (:mod:`training`); out comes a run of brim's in which the
module's steps, hooks and logs mean what they mean in Lightning. What would not is refused (:mod:`refusals`).
"""
