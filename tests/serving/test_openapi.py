"""The server's own OpenAPI document."""

import json
import re

import pytest

from tests.support.scripted_app import Make


def test_errors_are_told_as_they_are(make: Make) -> None:
    client, _ = make()
    document = client.get("/openapi.json").json()
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len(operations) >= 15
    for one in operations:
        assert one["responses"].keys() == {"200", "4XX", "5XX"}, one
    schema = document["paths"]["/health"]["get"]["responses"]["4XX"]["content"]["application/json"]
    for path in ("/v1/completions", "/v1/messages"):
        answer = client.post(path, json={"prompt": 5}).json()
        assert set(schema["schema"]["required"]) <= answer.keys()
        assert set(schema["schema"]["properties"]["error"]["required"]) <= answer["error"].keys()


@pytest.mark.parametrize("field", ["prompt", "messages"])
def test_either_body_of_tokenize_is_told(make: Make, field: str) -> None:
    client, _ = make()
    body = client.get("/openapi.json").json()["paths"]["/tokenize"]["post"]["requestBody"]
    kinds = body["content"]["application/json"]["schema"]["anyOf"]
    (kind,) = [one for one in kinds if field in one["properties"]]
    assert kind["required"] == [field] and kind["additionalProperties"] is False


def test_every_reference_leads_somewhere(make: Make) -> None:
    """A reader of the document, such as a generator of clients, can make every body."""
    client, _ = make()
    document = client.get("/openapi.json").json()
    found = re.findall(r'"\$ref": "([^"]*)"', json.dumps(document))
    assert len(found) > 20
    for reference in found:
        place = document
        for key in reference.removeprefix("#/").split("/"):
            assert key in place, reference
            place = place[key]
