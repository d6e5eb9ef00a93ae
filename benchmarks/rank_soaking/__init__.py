"""What ``rank_soak.py`` is made of."""
