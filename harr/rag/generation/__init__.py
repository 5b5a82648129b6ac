"""Generators: who writes the text that a pipeline asks for."""
