"""Measurements; README.md in this folder says how to run them."""
