"""Generators, which write the text that a pipeline asks for."""
