"""Rules of your own that ask about the model, as the built-in ones do."""

from amp_rewrite.rewriting.paint.keep import Ask, Keep, Kept, Match, Need, keep
from amp_rewrite.rewriting.paint.paint_pass import Stage
from amp_rewrite.rewriting.reasons import PassReason

__all__ = ["Ask", "Keep", "Kept", "Match", "Need", "PassReason", "Stage", "keep"]
