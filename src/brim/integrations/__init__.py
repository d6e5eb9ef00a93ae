"""brim inside other people's trainers, and their models inside brim's: one folder for each library.

In come that library's own objects (a LightningModule, its trainer), out come runs of brim's, or brim's parts in their
loop. Nothing here is imported by ``import brim``, and a library only where its folder is.
"""
