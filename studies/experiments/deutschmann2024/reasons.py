"""Why a value differs from the paper's, where it is known; the first rule that fits speaks."""

from __future__ import annotations

from dataclasses import dataclass

from studies.experiments.deutschmann2024 import methods as names


@dataclass(frozen=True)
class Reason:
    """A letter for the table, a sentence for below it, and the cells that it is about."""

    letter: str
    text: str
    stages: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()

    def fits(self, stage: str, n: int, method: str) -> bool:
        """Whether it speaks about this row."""
        return (
            (not self.stages or stage in self.stages)
            and (not self.sizes or n in self.sizes)
            and (not self.methods or method in self.methods)
        )


REASONS = (
    Reason(
        "a",
        "The paper prints for N = 2,000 what it prints for N = 500, in all five columns: most "
        "likely a slip. Ours are of N = 2,000.",
        stages=("one_dimensional",),
        sizes=(2000,),
        methods=(names.LVD_BASE,),
    ),
    Reason(
        "b",
        "LVD's metric is trained on all of up to 2,000 rows for up to 500 steps of L-BFGS; the "
        "published optimiser takes small batches and stops early, at a wider kernel. The narrower "
        "one leaves more intervals infinite. R²_SQI and τ of LVD also hang on how infinite widths "
        "are binned, which the paper does not say; on the networks' tasks the embedding differs "
        "as well (d, e, f).",
        methods=(names.LVD_BASE, names.LVD_TUNED),
    ),
    Reason(
        "c",
        "The paper does not say where its grid of length scales begins. Ours begins where a kernel "
        "averages some ten training points, and folds are left out instead of single points.",
        methods=(names.TUNED_MI,),
    ),
    Reason(
        "d",
        "Another network: the weights of the paper's ChemBERTa could not be had, and another "
        "pretrained SMILES transformer (rxnfp) was fine-tuned by the same recipe. Errors, and what "
        "the embedding knows about them, are not the paper's.",
        stages=("solubility", "clearance"),
    ),
    Reason(
        "e",
        "Other data and another encoder: 38,962 of the paper's 69,297 antibodies can be had, so "
        "that 16,435 train instead of 39,466, and AntiBERTy embeds them instead of AbLang.",
        stages=("alphaseq",),
    ),
    Reason(
        "f",
        "Another network: the figure with the paper's architecture is not in its source, nor are "
        "batch size and number of epochs. Ours was chosen for widths near the paper's.",
        stages=("mnist",),
    ),
    Reason("g", "Not known."),
)


def reason_of(stage: str, n: int, method: str) -> Reason:
    """The first reason that fits; the last fits all."""
    return next(reason for reason in REASONS if reason.fits(stage, n, method))
