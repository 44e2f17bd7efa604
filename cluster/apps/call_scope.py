"""The values of a Keras model's variables while one call of it is traced, inside loops too.

Outside of loops a changed value is a tensor of the graph. Inside a loop that does not do: the
loop's body is traced once, so a tensor that it leaves behind is never carried to the next turn.
Such a value is held by a variable of the graph, which the function makes, fills, changes and ends
in each call. So each turn of a loop draws another mask, as in `keras.Model.fit`.
"""

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from typing_extensions import override

import core.engine.graph_options  # noqa: F401  (before keras)
from cluster.apps.travels import SEED_STATE
from core.ground.lazy import tf

import keras  # isort: skip


def is_seed(variable: Any) -> bool:
    """Whether a Keras variable is the state of a generator of random numbers."""
    return bool(variable.path.endswith(SEED_STATE))


def seed_of_site(seed: Any, site: int, dtype: str) -> Any:
    """The state, (2,), of the generator number `site` in a call with `seed`, int32 (2,)."""
    site_seed = tf.random.experimental.stateless_fold_in(seed, site, alg="philox")
    return tf.cast(tf.bitcast(site_seed, tf.uint32), dtype)


def _graph() -> Any:
    if tf.executing_eagerly():
        return None
    return tf.compat.v1.get_default_graph()


class _GraphVariable:
    """A value in a variable of the graph."""

    def __init__(self, value: Any) -> None:
        self._dtype = value.dtype
        self._shape = value.shape
        self._handle = tf.raw_ops.VarHandleOp(
            dtype=value.dtype,
            shape=value.shape,
            # TensorFlow's anonymous_name(): each execution makes a variable of its own.
            shared_name="cd2c89b7-88b7-44c8-ad83-06c2a9158347",
        )
        self.write(value)

    def read(self) -> Any:
        value = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self._dtype)
        return tf.stop_gradient(tf.ensure_shape(value, self._shape))

    def write(self, value: Any) -> None:
        tf.raw_ops.AssignVariableOp(resource=self._handle, value=value)

    def end(self) -> None:
        tf.raw_ops.DestroyResourceOp(resource=self._handle)


class CallScope(keras.StatelessScope):  # type: ignore[misc]  # Keras has no types
    """A StatelessScope that keeps what a loop changes and seeds generators outside the model."""

    def __init__(
        self,
        variables: Sequence[Any],
        values: Sequence[Any],
        *,
        looped: Iterable[Any] = (),
        seed: Any = None,
    ) -> None:
        """`values` are those of `variables`; `looped` are those that a loop or branch changes.

        `seed`, int32 (2,), is for generators that are none of `variables`; without one their state
        is a constant.
        """
        super().__init__(list(zip(variables, values, strict=True)), collect_losses=True)
        self._before = dict(self.state_mapping)
        self._known = {id(variable): variable for variable in variables}
        self._looped = [id(variable) for variable in looped]
        self._graph_variables: dict[int, _GraphVariable] = {}
        self._seed = seed
        self._sites = sum(map(is_seed, variables))
        self._own_graph: Any = None
        self.changed_inside: dict[int, Any] = {}
        """Variables that were changed inside a loop or branch, by their id."""
        self.lost: dict[int, Any] = {}
        """The variables among them that were not held, so that the change is gone."""
        self.strangers: dict[int, Any] = {}
        """Variables that were changed or read although they are none of the model's, generators
        left out."""

    def __enter__(self) -> Any:
        self._own_graph = _graph()
        self._graph_variables = {
            key: _GraphVariable(self.state_mapping[key]) for key in self._looped
        }
        return super().__enter__()

    def __exit__(self, *problem: Any) -> None:
        super().__exit__(*problem)
        if problem and problem[0] is not None:
            return
        for key, graph_variable in self._graph_variables.items():
            self.state_mapping[key] = graph_variable.read()
            graph_variable.end()
        self._graph_variables = {}

    @override
    def get_current_value(self, variable: Any) -> Any:
        key = id(variable)
        if key not in self._known and key not in self._graph_variables:
            self._meet(variable)
        graph_variable = self._graph_variables.get(key)
        if graph_variable is None:
            return super().get_current_value(variable)
        return graph_variable.read()

    @override
    def add_update(self, update: tuple[Any, Any]) -> None:
        variable, value = update
        key = id(variable)
        inside = _graph() is not self._own_graph
        if inside:
            self.changed_inside[key] = variable
        if key not in self._known and key not in self._graph_variables:
            self._meet(variable)
        graph_variable = self._graph_variables.get(key)
        if graph_variable is not None:
            graph_variable.write(value)
        elif inside:
            self.lost[key] = variable
        else:
            super().add_update(update)

    def changes(self, variable: Any) -> bool:
        """Whether the call has assigned a value to one of the model's variables."""
        now = self.state_mapping[id(variable)]
        return id(variable) in self.changed_inside or now is not self._before[id(variable)]

    def _meet(self, variable: Any) -> None:
        """Take in a variable that is none of the model's.

        A generator gets a seed of its own, a site behind the last. It is held from the start,
        because the first draw may be inside a loop.
        """
        if not is_seed(variable):
            self.strangers[id(variable)] = variable
            return
        with nullcontext() if self._own_graph is None else self._own_graph.as_default():
            if self._seed is None:
                seed = tf.zeros([2], tf.int32)
            else:
                seed = self._seed
            self._graph_variables[id(variable)] = _GraphVariable(
                seed_of_site(seed, self._sites, variable.dtype)
            )
        self._sites += 1
