"""The authors' code of Q-RAG (a folder with a copy of github.com/griver/Q-RAG), trained and played on our stories.

Patches: ``vllm``, which it imports but does not use here, is an empty module if not installed, and torch.compile is
off. ``rotary-embedding-torch`` and ``einops`` must be installed. The algorithm, its networks, environment and feedback
are theirs, and so are the hyperparameters (configs/algo); the base model, its width and its layers are given, and
warm-up and random picks are scaled to the run, from 50,000 updates.
"""

import os
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"

import numpy as np
import torch

Document = tuple[str, list[str], tuple[int, ...]]
"""A question, the sentences of its document, and the positions of its gold."""


def random_picks(batch: int, updates: int) -> int:
    """Return how many picks are random at first: 400 as in theirs, but at most a tenth of the run.

    >>> random_picks(24, 30)
    72
    """
    return min(400, batch * updates // 10)


class Stories:
    """Documents in the form that their environment expects."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self.documents = documents

    def __len__(self) -> int:
        return len(self.documents)

    def __getitem__(self, number: int) -> dict[str, Any]:
        question, sentences, gold = self.documents[number]
        return {"id": number, "question": question, "answer": "", "chunks": sentences, "sf_idx": list(gold)}


class Peer:
    """Their agent and environment."""

    def __init__(
        self, folder: Path, model: str, *, positions: str, tokens: int, algorithm: str, updates: int, seed: int
    ) -> None:
        if not (folder / "rl/agents/pqn.py").exists():
            raise SystemExit(f"{folder} holds no copy of github.com/griver/Q-RAG")
        sys.path.insert(0, str(folder.resolve()))
        try:
            import vllm  # noqa: F401
        except ImportError:
            sys.modules["vllm"] = types.ModuleType("vllm")
            vars(sys.modules["vllm"]).update(LLM=None, SamplingParams=None)
        from omegaconf import OmegaConf
        from rl.agents.pqn import PQN
        from transformers import AutoConfig

        base = AutoConfig.from_pretrained(model)
        values = {
            "algo": OmegaConf.load(folder / f"configs/algo/{algorithm}.yaml"),
            "envs": {"positions_processor": positions},
            "accumulate_grads": 1,
            "steps_count": updates,
            "max_action_length": tokens,
            "max_action_length_in_memory": tokens,
        }
        config: Any = OmegaConf.create(values)
        config.algo.model.model_name = model
        config.algo.model.revision = None
        config.algo.model.predictor.update(num_layers=base.num_hidden_layers, input_dim=base.hidden_size)
        config.algo.pqn.scheduler.warmup = max(1, updates // 50)  # 1,000 of 50,000
        np.random.seed(seed)
        torch.manual_seed(seed)
        torch.set_default_device("cpu")
        self.agent, self.positions, self.tokens = PQN(config.algo), positions, tokens

    def environment(self, documents: Sequence[Document], picks: int) -> Any:
        """Return their environment over our documents; an episode ends after so many picks."""
        from envs.qa_env import QAEnv
        from envs.text_env import AbsolutePositionProcessor, RelativePositionProcessor
        from rl.feedback import GroundTruthFeedback

        places = RelativePositionProcessor(20) if self.positions == "relative" else AbsolutePositionProcessor()
        feedback = GroundTruthFeedback(penalize_extra_steps=True, never_terminate=True)
        stories = Stories(documents)
        return QAEnv(stories, picks, places, self.tokens, self.tokens, feedback, sort_by_index=self.positions != "none")

    def train(self, documents: Sequence[Document], picks: int, batch: int, updates: int, each: Any) -> None:
        """Train as train_q_rag.py does; ``each`` is called after every update."""
        from envs.parallel_env import ParallelTextEnv

        agent = self.agent
        env = ParallelTextEnv([self.environment(documents, picks)], agent.state_tokenizer, agent.action_tokenizer)
        states, _ = env.reset()
        done = 0
        for _ in range(updates):
            agent.train()
            early = done < random_picks(batch, updates)
            states, _, taken = env.rollout(batch, states, agent, random=early)
            done += int(np.prod(taken.reward.shape))
            agent.update(taken.state, taken.action, taken.next_state, taken.q_values, taken.reward, taken.not_done)
            each()
        agent.eval()

    @torch.no_grad()
    def play(self, document: Document, picks: int) -> tuple[list[int], list[list[float]]]:
        """Return a document's greedy picks, and the values of all its sentences before each."""
        agent, env = self.agent, self.environment([document], picks)
        state = env.reset(Stories([document])[0])
        live, target = env.get_extra_embeds(
            agent.action_tokenizer, agent.critic.action_embed, agent.action_embed_target
        )
        places, values, done = [], [], False
        while not done:
            live = env.update_embeds(live, agent.critic.action_embed)
            target = env.update_embeds(target, agent.action_embed_target)
            place, q_values, _ = agent.select_action(state, live["rope"], target["rope"], evaluate=True)
            places.append(place)
            values.append(q_values.tolist())
            state, _, _, done = env.step(place)
        return places, values
