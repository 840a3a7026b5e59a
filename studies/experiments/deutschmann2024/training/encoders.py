"""Pre-trained encoders: the paper's, by name, when a model hub answers; else ones in packages.

| data | the paper's | else, shipped inside a Python package |
|---|---|---|
| SMILES | DeepChem/ChemBERTa-77M-MTR | rxnfp 0.1.0, ``bert_pretrained``: 12 layers × 256, MIT |
| antibodies | AbLang, heavy and light | antiberty 0.1.3: 8 layers × 512, both chains, MIT |

Which one was taken is written beside the weights (``origin.json``) and into every artefact. Set
``HF_HUB_OFFLINE=1`` to skip the hub. The packages are needed without their dependencies:
``pip install --no-deps rxnfp==0.1.0 antiberty==0.1.3``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, BertConfig, BertModel, RobertaModel

#: Atoms in brackets, two-letter atoms, ring numbers of two digits; else one character a token.
_SMILES_TOKEN = re.compile(r"\[[^\]]+\]|Br|Cl|%\d\d|>>|.", re.DOTALL)


@dataclass(frozen=True)
class Encoder:
    """A model, its tokeniser, and where both come from."""

    model: Any
    tokenise: Callable[[list[str]], list[list[int]]]
    padding: int
    #: Tokens that stand for no letter of the sequence.
    special: tuple[int, ...]
    max_length: int
    origin: str
    folder: str

    def save(self, folder: Path) -> None:
        """Weights in half precision, which pre-training noise exceeds by far."""
        self.model.half().save_pretrained(folder)
        (folder / "origin.json").write_text(json.dumps(self.origin) + "\n")


def smiles() -> Encoder:
    """An encoder of SMILES."""
    found = _from_hub("DeepChem/ChemBERTa-77M-MTR", "smiles_encoder", spaced=False)
    if found:
        return found
    folder = _inside("rxnfp") / "models" / "transformers" / "bert_pretrained"
    origin = "rxnfp 0.1.0, bert_pretrained"
    return _from_package(folder, folder / "vocab.txt", _SMILES_TOKEN, origin, "smiles_encoder")


def antibody(chain: str) -> Encoder:
    """An encoder of one kind of chain, "heavy" or "light"."""
    found = _from_hub(f"qilowoq/AbLang_{chain}", f"{chain}_encoder", spaced=True)
    if found:
        return found
    models = _inside("antiberty") / "trained_models"
    folder, vocabulary = models / "AntiBERTy_md_smooth", models / "vocab.txt"
    origin = "antiberty 0.1.3, AntiBERTy_md_smooth"
    return _from_package(folder, vocabulary, re.compile("."), origin, "antibody_encoder")


def _from_hub(name: str, folder: str, *, spaced: bool) -> Encoder | None:
    try:
        tokeniser = AutoTokenizer.from_pretrained(name)
        model = RobertaModel.from_pretrained(name, add_pooling_layer=False)
    except OSError as error:
        print(f"{name} cannot be had ({type(error).__name__}); stand-in taken", file=sys.stderr)
        return None

    def tokenise(sequences: list[str]) -> list[list[int]]:
        texts = [" ".join(sequence) if spaced else sequence for sequence in sequences]
        return [list(row) for row in tokeniser(texts)["input_ids"]]

    # Roberta counts positions from two, after the padding's.
    longest = model.config.max_position_embeddings - 2
    special = tuple(tokeniser.all_special_ids)
    padding = tokeniser.pad_token_id
    return Encoder(model, tokenise, padding, special, longest, name, folder)


def _from_package(
    weights: Path, vocabulary: Path, token: re.Pattern[str], origin: str, folder: str
) -> Encoder:
    config = BertConfig.from_json_file(weights / "config.json")
    model = BertModel(config, add_pooling_layer=False)
    stored = torch.load(weights / "pytorch_model.bin", map_location="cpu", weights_only=True)
    encoder = {
        name.removeprefix("bert."): values
        for name, values in stored.items()
        if name.startswith("bert.") and not name.startswith("bert.pooler.")
    }
    _, unexpected = model.load_state_dict(encoder, strict=False)
    absent = set(model.state_dict()) - set(encoder)
    if absent or set(unexpected) - {"embeddings.position_ids"}:
        raise RuntimeError(f"weights do not fit: absent {absent}, unexpected {unexpected}")
    number = {line: i for i, line in enumerate(vocabulary.read_text().split("\n")) if line}

    def tokenise(sequences: list[str]) -> list[list[int]]:
        unknown = number["[UNK]"]
        return [
            [
                number["[CLS]"],
                *(number.get(part, unknown) for part in token.findall(sequence)),
                number["[SEP]"],
            ]
            for sequence in sequences
        ]

    special = tuple(number[name] for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"))
    longest = config.max_position_embeddings
    return Encoder(model, tokenise, number["[PAD]"], special, longest, origin, folder)


def _inside(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise SystemExit(f"{package} is needed for its weights; see {__name__}")
    return Path(spec.origin).parent
