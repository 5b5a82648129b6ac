"""Open-domain question benchmarks from the Hugging Face hub: HotpotQA, 2WikiMultihopQA, MuSiQue, NQ, TriviaQA."""

from harr_open_domain.hub import ALL, HOTPOTQA, MUSIQUE, NQ, TRIVIAQA, TWO_WIKI

__all__ = ["ALL", "HOTPOTQA", "MUSIQUE", "NQ", "TRIVIAQA", "TWO_WIKI"]
