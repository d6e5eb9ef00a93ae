"""Trainings that are killed, hurt and set up at random, for benchmarks/soak.py."""
