"""Every key under which the package notes something in a model."""

# In the metadata_props of a node.
PART_KEY = "amp_rewrite.part"
"""The part of a training step that a node belongs to; one of the forward model has none."""
SOURCE_KEY = "amp_rewrite.gradient_of"
"""The node that a node of a gradient differentiates (`source_key`)."""
CHECK_KEY = "amp_rewrite.check"
"""Marks a node that compares the norm of gradients with the largest number."""
DROPOUT_KEY = "amp_rewrite.dropout"
"""On a node that stands for a Dropout: the name of the data that the Dropout read."""
PRECISION_KEY = "amp_rewrite.precision"
"""The type that a node computes in, for viewers."""
REASON_KEY = "amp_rewrite.reason"
"""Why, for viewers."""

# In the metadata_props of a model.
STEP_KEY = "amp_rewrite.step"
"""How a step model describes itself, as JSON."""
TARGET_KEY = "amp_rewrite.target"
"""The target that the model was rewritten for."""
EXPONENTS_KEY = "amp_rewrite.exponents"
"""Which values the model computes times which powers of two, as JSON."""
FORWARD_KEY = "amp_rewrite.forward"
"""The structure of the model that a step model trains, packed."""
CHECKPOINT_KEY = "amp_rewrite.checkpoint"
"""In a checkpoint instead: its version, roles and progress, as JSON."""

# In the meta of a model or its main graph.
MESSAGE_KEY = "amp_rewrite.message"
"""The message that a model was read from."""
TRAINING_KEY = "amp_rewrite.training"
"""The training graph that was made of a model."""
PREPARED_KEY = "amp_rewrite.prepared_for_gradients"
"""Says that a model has been prepared for gradients."""

# In the meta of a node.
GIVEN_NAME_KEY = "amp_rewrite.given_name"
"""The name that a node was given when it was read, since it had none."""

# In the meta of a value.
COMPARED_KEY = "amp_rewrite.compared"
"""On a loss: what it compares, and what its mean is divided by."""
SCALED_KEY = "amp_rewrite.scaled"
"""On a scaled loss: the loss."""
UNSCALED_KEY = "amp_rewrite.unscaled"
"""Says that a value is a gradient as the backward pass leaves it, unscaled."""
SQUARES_KEY = "amp_rewrite.squares"
"""On a gradient: the sum of its squares."""
UNCLIPPED_KEY = "amp_rewrite.unclipped"
"""On a clipped gradient: the gradient before."""

# In the metadata_props of a node, and in no file.
GIVEN_KEY = "amp_rewrite.given"
"""The origin of a node in the model whose float32 form it belongs to: its number there, and its
type variables that were 16-bit (rewriting/paint/given_notes.py)."""
