"""Empirical priors for the scores: one fit per model and benchmark, shared by its subjects and slices.

A subject has too few problems to learn from, and its model's other problems are the best there is to go by.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from scorelake.metrics import Mixture
from scorelake.metrics.distributions import Floats, Ints
from scorelake.metrics.empirical import fit_beta_mixture

_PARTS = ("alpha", "beta", "weight")


class Crowd:
    """The rows to evaluate: every distinct (model, n, c) of some histograms, under each prior of the model's fit."""

    def __init__(self, histograms: Sequence[pl.DataFrame], keys: Sequence[str]) -> None:
        """The first histogram is by the keys a prior is fitted for; the others are finer."""
        whole, counts = histograms[0], ("n", "c", "problems")
        groups = whole.partition_by(keys, maintain_order=True)
        fits = [fit_beta_mixture(*(group[name].to_numpy() for name in counts)) for group in groups]
        order = whole.select(keys).unique(maintain_order=True).with_row_index("fit")
        rows = pl.concat([histogram.select(*keys, "n", "c") for histogram in histograms])
        mine = rows.join(order, on=keys, how="left", maintain_order="left").select("fit", "n", "c")
        known = mine.unique().sort("fit", "n", "c").with_row_index("place")
        found = mine.join(known, on=["fit", "n", "c"], how="left", maintain_order="left")
        self.place: Ints = found["place"].cast(pl.Int64).to_numpy()
        self.fit: Ints = known["fit"].cast(pl.Int64).to_numpy()
        alpha, beta, weight = (np.stack([getattr(f, name) for f in fits], axis=1) for name in _PARTS)
        self.weight: Floats = weight
        self.prior = (alpha[:, self.fit].ravel(), beta[:, self.fit].ravel())
        self.n: Ints = np.tile(known["n"].to_numpy(), weight.shape[0])
        self.c: Ints = np.tile(known["c"].to_numpy(), weight.shape[0])

    def mixture(self, place: Ints, starts: Ints) -> Mixture:
        """The priors of one histogram's rows (its part of `place`), and their weights in its groups."""
        shift = self.fit.size * np.arange(self.weight.shape[0])[:, None]
        return Mixture(place + shift, self.weight[:, self.fit[place[starts]]])
