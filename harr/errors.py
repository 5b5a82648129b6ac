"""Errors for the user: one line that says what, where, and what to do next.

    HarrError
    +-- ParamsError        (ValueError)        params.yaml is wrong
    +-- CorpusError        (ValueError)        passages or questions are wrong or missing
    +-- IndexMismatch      (RuntimeError)      the index is not the one the encoder and corpus ask for
    +-- StaleState         (RuntimeError)      resumable work was made under other parameters
    +-- DamagedFile        (OSError)           bytes on disk differ from their manifest
    +-- NoRoom             (OSError)           a stage would not fit on the disk or into memory
    +-- InUse              (RuntimeError)      another process works here
    +-- ExpectationFailed  (ValueError)        a data expectation did not hold
    +-- ServiceUnavailable (ConnectionError)   a server did not answer within its deadline
    +-- ModelError         (ValueError)        a model folder is wrong, unsafe, or of another base
    +-- PromotionRefused   (RuntimeError)      the registry alias was not moved
    +-- MissingExtra       (ImportError)       a package of an extra is not installed

Anything that is not a ``HarrError`` is a bug in harr and keeps its traceback.
"""

import re


class HarrError(Exception):
    """Base of every error that a user can fix; its text is complete without a traceback."""


class ParamsError(HarrError, ValueError):
    """params.yaml is missing, unreadable, or has a wrong value."""


class CorpusError(HarrError, ValueError):
    """A passage or question file is missing or a row in it is wrong."""


class NoPreference(CorpusError):
    """Queries were tried, but none that could be learnt was better than another."""


class IndexMismatch(HarrError, RuntimeError):
    """The index was built by another encoder or from another corpus."""


class StaleState(HarrError, RuntimeError):
    """Unfinished work on disk belongs to other parameters."""


class DamagedFile(HarrError, OSError):
    """A file differs from the hash in its manifest."""


class NoRoom(HarrError, OSError):
    """A stage needs more disk or memory than available; it has not begun."""


class InUse(HarrError, RuntimeError):
    """Another running process works in this folder."""


class ExpectationFailed(HarrError, ValueError):
    """A Great Expectations rule did not hold."""


class ServiceUnavailable(HarrError, ConnectionError):
    """A server could not be reached before the deadline."""


class ModelError(HarrError, ValueError):
    """A model folder is incomplete, unsafe, or belongs to another base model."""


class PromotionRefused(HarrError, RuntimeError):
    """The candidate did not earn the alias ``champion``."""


class MissingExtra(HarrError, ImportError):
    """A feature needs a package that only an extra of harr installs."""


def bare(address: str) -> str:
    """Return an address without its user name and password, if any.

    >>> bare("postgresql://me:secret@db/mlflow")
    'postgresql://db/mlflow'
    >>> bare("http://me:p@ss@db:5000/@")
    'http://db:5000/@'
    """
    return re.sub(r"://[^/?#\s]*@", "://", address)


def one_line(error: object, limit: int = 200, *, secret: str = "") -> str:
    """Return an exception's message in one line of at most ``limit`` characters; its class if it has none.

    Passwords in addresses are left out, ``secret`` is replaced by three asterisks, and control characters
    (escapes, direction marks) by question marks.

    >>> one_line(OSError("no\\n route to https://me:pass@host"), 22), one_line(KeyError())
    ('no route to https://ho', 'KeyError')
    """
    text = str(error).replace(secret, "***") if secret else str(error)
    return printable(" ".join(bare(text).split()))[:limit] or type(error).__name__


def printable(text: str) -> str:
    r"""Return a text with control characters replaced by question marks, except line breaks.

    >>> printable("a\x1b[2Jb\u202ec\nd")
    'a?[2Jb?c\nd'
    """
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)
