from harr.builders.trained import Session as Session, TrainedRetriever as Retriever
from harr.rag.policies.state import state as state
from harr.types import Hop as Hop, Passage as Passage, Question as Question, Search as Search

__version__: str
__all__ = ["Hop", "Passage", "Question", "Retriever", "Search", "Session", "state"]
