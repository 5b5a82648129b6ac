"""Inputs of the stages: what `dvc repro` compares before it runs anything (tasks/inputs/stages.py)."""
