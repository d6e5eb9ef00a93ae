"""Damaged and hostile files, and the readers that must take them."""
