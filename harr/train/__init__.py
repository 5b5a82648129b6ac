"""Methods by name: ``train(params, setup, out, work, log, seed)`` returns one row per step."""

from harr.train import grpo

METHODS = {"grpo": grpo.train}
