"""Servers and workers on one machine (`harr up`, `harr down`), and what is wrong with it (`harr doctor`)."""
