"""What is in this machine, and which part of it a run uses."""

from brim.hardware.choice import DeviceChoice, choose_device
from brim.hardware.inventory import Gpu, Inventory, inventory, usable_cores
from brim.hardware.memory_use import memory_in_use

__all__ = ["DeviceChoice", "Gpu", "Inventory", "choose_device", "inventory", "memory_in_use", "usable_cores"]
