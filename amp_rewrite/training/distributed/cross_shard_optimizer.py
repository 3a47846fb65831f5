"""An optimizer that sums its gradients over shards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import onnx_ir as ir

from amp_rewrite.errors import OptimizerTypeError, OptimizerValueError, warn
from amp_rewrite.grad.builder.builder import Builder
from amp_rewrite.grad.rule import IndexedSlices
from amp_rewrite.graph.step_part import Part
from amp_rewrite.training.graph.replicas import (
    CURRENT,
    Groups,
    cross_replica_gather,
    cross_replica_sum,
    replica_count,
)
from amp_rewrite.training.graph.training_graph import GraphValue, State, TrainingGraph
from amp_rewrite.training.optimizers import argument_checks as check
from amp_rewrite.training.optimizers.apply_updates import check_pairs
from amp_rewrite.training.optimizers.compute_gradients import Loss, check_loss
from amp_rewrite.training.optimizers.gradient import Gradient, unwrap, wrap
from amp_rewrite.training.optimizers.optimizer import Optimizer, overrides
from amp_rewrite.training.optimizers.slots import Variable
from amp_rewrite.training.optimizers.train_op import TrainOp
from amp_rewrite.training.optimizers.wrapper import OptimizerWrapper

SUM, MEAN = "sum", "mean"
_SCOPE = "cross_replica"


class CrossShardOptimizer(OptimizerWrapper):
    """Sums gradients over shards, and leaves the rest to another optimizer.

    Every shard runs the same step on its own part of the batch. compute_gradients scales the loss
    by 1 / (number of shards), or 1 / (size of the group), if the reduction is MEAN: the seed of the
    walk is scaled, in float32. apply_gradients sums each gradient over the shards (CrossReplicaSum)
    and gives the sums to the wrapped optimizer. One step runs on any number of shards.

    A sparse gradient stays sparse: values and indices of all shards are joined
    (CrossReplicaGather). Running statistics of BatchNormalization are averaged over the shards: the
    mean is that of the whole batch, the variance leaves out how far the means of the shards lie
    apart. The fetch "loss" is the mean (MEAN) or the sum (SUM) of the losses of the shards.

    Whatever changes gradients between compute_gradients and apply_gradients, such as clipping,
    changes each shard's own, before the sum; to clip the sums instead:

        pairs = optimizer.reduce_gradients(optimizer.compute_gradients(loss))
        op = optimizer.apply_reduced(clipped(pairs))

    Groups are trained apart from each other: each has weights of its own after the first step, and
    a checkpoint holds those of shard 0's group. All other members are those of the wrapped
    optimizer.
    """

    inner_argument = "opt"

    def __init__(
        self,
        opt: Optimizer,
        reduction: str = MEAN,
        name: str = "CrossShardOptimizer",
        group_assignment: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Wrap an optimizer.

        Args:
            opt: The optimizer that applies the sums.
            reduction: "mean" or "sum", in any case.
            name: Not empty.
            group_assignment: The shards of each group, inside which gradients are summed: a
                permutation of all, in groups of one size. None or an empty list is one group.

        Raises:
            OptimizerTypeError: `opt` is no Optimizer.
            OptimizerValueError: Another argument is impossible.
        """
        reduction_name = cast(object, reduction)
        if not isinstance(reduction_name, str) or reduction_name.lower() not in (SUM, MEAN):
            raise OptimizerValueError(
                "Unsupported reduction", found=repr(reduction_name), expected="SUM or MEAN"
            )
        optimizer = cast(object, opt)
        if not isinstance(optimizer, Optimizer):
            raise OptimizerTypeError(
                "CrossShardOptimizer only works with Optimizer instances",
                where="opt",
                found=f"an object of type {type(optimizer).__name__}",
                expected="an amp_rewrite.optimizers.Optimizer",
            )
        check.optimizer_name(name)
        super().__init__(optimizer)
        self._reduction = reduction_name.lower()
        self._groups = check_groups(group_assignment)
        self._name = name

    @property
    def reduction(self) -> str:
        """The reduction: "mean" or "sum"."""
        return self._reduction

    @property
    def name(self) -> str:
        """The name of this optimizer; slots are named after the wrapped one."""
        return self._name

    def _gradients_of(
        self, loss: GraphValue, variables: Sequence[Any], grad_loss: GraphValue | None
    ) -> list[tuple[Any, State]]:
        """Return this shard's gradients, of the mean over the shards if that is the reduction."""
        self._check_context()
        seed = self._seed(loss, grad_loss) if self.reduction == MEAN else grad_loss
        return super()._gradients_of(loss, variables, seed)

    def _seed(self, loss: GraphValue, grad_loss: GraphValue | None) -> GraphValue:
        b = loss.graph.scoped(_SCOPE, Part.ALL_REDUCE)
        share = b.reciprocal(replica_count(b, self._groups))
        if grad_loss is not None:
            seed = grad_loss.value
            seed_type = b.type_of(seed)
            wide = b.cast(seed, max(seed_type, ir.DataType.FLOAT, key=lambda dtype: dtype.itemsize))
            return GraphValue(loss.graph, b.mul(wide, b.cast_like(share, wide)))
        return GraphValue(loss.graph, b.expand_like(share, loss.value))

    def _check_context(self) -> None:
        """Check the groups against the context."""
        context = CURRENT.get()
        if context is None:
            warn(
                "CrossShardOptimizer is used outside a shard context; one shard is assumed, until "
                "a session with shards runs the step"
            )
        elif context.size is not None:
            check_permutation(self._groups, context.size)

    def reduce_gradients(
        self, grads_and_vars: Iterable[tuple[Gradient, Variable]]
    ) -> list[tuple[Gradient, Variable]]:
        """Return the pairs with each gradient summed over the shards; None stays None."""
        graph, pairs = check_pairs(grads_and_vars)
        self._average_statistics(graph)
        summed = [(self._sum(graph, gradient), variable) for gradient, variable in pairs]
        return super().reduce_gradients(summed)

    def _sum(self, graph: TrainingGraph, gradient: Gradient) -> Gradient:
        if gradient is None:
            return None
        b = graph.scoped(_SCOPE, Part.ALL_REDUCE)
        raw = unwrap(gradient)
        if isinstance(raw, IndexedSlices):
            values = cross_replica_gather(b, raw.values, self._groups)
            indices = cross_replica_gather(b, raw.indices, self._groups)
            return wrap(graph, IndexedSlices(values, indices, raw.dense_shape))
        return wrap(graph, cross_replica_sum(b, raw, self._groups))

    def _average_statistics(self, graph: TrainingGraph) -> None:
        b = graph.scoped(_SCOPE, Part.ALL_REDUCE)
        for following in graph.assigned.values():
            means = graph.averaged.setdefault(following, {})
            if self._groups not in means:  # of groups in a hierarchy each averages once
                share = self._share(b, graph.averaged_of(following))  # as gradients are scaled
                means[self._groups] = cross_replica_sum(b, share, self._groups)

    def _share(self, b: Builder, value: ir.Value) -> ir.Value:
        share = b.cast_like(b.reciprocal(replica_count(b, self._groups)), value)
        return b.mul(value, share)

    def apply_reduced(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> TrainOp:
        """Let the wrapped optimizer apply summed gradients; the fetch "loss" is that of all."""
        op = super().apply_reduced(grads_and_vars, global_step, name)
        if "loss" not in op.fetches:
            return op
        loss = op.fetches["loss"]
        b = op.graph.scoped(_SCOPE, Part.ALL_REDUCE)
        share = self._share(b, loss) if self.reduction == MEAN else loss
        total = cross_replica_sum(b, share, self._groups)
        return replace(op, fetches={**op.fetches, "loss": total})

    def get_gradients(self, loss: Loss, params: Iterable[Variable]) -> list[Any]:
        """Return this shard's gradients; a `get_gradients` of a user's own gets its share."""
        inner = self.inner_optimizer
        if not overrides(inner, "get_gradients"):
            return Optimizer.get_gradients(self, loss, params)
        self._check_context()
        value = check_loss(loss)
        share = value
        if self.reduction == MEAN:
            b = value.graph.scoped(_SCOPE, Part.ALL_REDUCE)
            share = GraphValue(value.graph, self._share(b, value.value))
        gradients = inner.get_gradients(share, params)
        value.graph.loss = value  # what a session shows as the loss is not a share
        return gradients

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an optimizer like this one."""
        return {
            **super().get_config(),
            "reduction": self.reduction,
            "name": self.name,
            "group_assignment": [list(group) for group in self._groups] or None,
        }


def check_groups(assignment: Sequence[Sequence[int]] | None) -> Groups:
    """Return groups, which may be empty."""
    given = cast("Any", assignment)
    if given is None or (isinstance(given, list | tuple) and not given):
        return ()
    lists = isinstance(given, list | tuple) and all(isinstance(g, list | tuple) for g in given)
    if not lists or not all(g and all(type(n) is int for n in g) for g in given):
        raise OptimizerValueError(
            "group_assignment must be a list of lists of numbers of shards", found=repr(given)
        )
    groups = tuple(tuple(group) for group in given)
    check_permutation(groups, sum(map(len, groups)))
    if len({len(group) for group in groups}) > 1:
        raise OptimizerValueError(
            "the groups of group_assignment must be of equal size", found=assignment
        )
    return groups


def check_permutation(groups: Groups, shards: int) -> None:
    """Refuse groups that are not made of all shards, each once."""
    numbers = [shard for group in groups for shard in group]
    if groups and sorted(numbers) != list(range(shards)):
        raise OptimizerValueError(
            f"group_assignment must be a permutation of range({shards})",
            found=[list(group) for group in groups],
        )
