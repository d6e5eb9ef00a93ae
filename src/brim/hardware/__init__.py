"""What is in this machine, and which part of it a run uses.

In: torch and the driver; names of cards, devices and links. Out: an inventory, a device for a run, and what is known
of a card.
"""

from brim.hardware.choice import DeviceChoice, choose_device
from brim.hardware.inventory import Gpu, Inventory, inventory, usable_cores
from brim.hardware.memory_use import memory_in_use

__all__ = ["DeviceChoice", "Gpu", "Inventory", "choose_device", "inventory", "memory_in_use", "usable_cores"]
