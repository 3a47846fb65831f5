"""Loss scaling for training graphs that are finished already, whoever made them."""

from amp_rewrite.errors import InjectError
from amp_rewrite.training.inject.inject import inject_loss_scaling

__all__ = ["InjectError", "inject_loss_scaling"]
