"""Runs seen from outside, by what they leave in their folders: which there are, how they stand, how two of them differ.

Run folders come in, which may be of any version, half written or no runs at all; plain data goes out, and tables for a
terminal. Nothing here imports torch, and nothing is written.
"""
