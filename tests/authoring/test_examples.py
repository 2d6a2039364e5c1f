from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from proxy import config, settings, toolconfig
from proxy.authoring.examples import EXAMPLES
from proxy.core.policy import casemodel, model
from proxy.settings import Surroundings


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_read_by_its_model(name: str, tmp_path: Path) -> None:
    """Not only by its schema: expressions compile, and names are known."""
    kinds: list[type[BaseModel]] = [
        getattr(module, name) for module in (model, casemodel, config, toolconfig, settings) if hasattr(module, name)
    ]
    assert kinds
    secret = tmp_path / "secret"
    secret.write_text("s")
    around = Surroundings(tmp_path, {"OPENAI_API_KEY": "s"})
    for example in EXAMPLES[name]:
        given = {"file": str(secret)} if "file" in example else example
        assert kinds[0].model_validate_json(json.dumps(given), by_alias=True, by_name=False, context=around)
