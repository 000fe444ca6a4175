"""Reads from a controller how a job is now, also of a stack in Pulumi Cloud or PostgreSQL, which no controller writes.

pulumi config set controller http://controller.example:8080
pulumi config set app default:train-k3x9
pulumi config set --secret token < token
"""

import json
from urllib.parse import quote
from urllib.request import Request, urlopen

import pulumi

config = pulumi.Config()
address, app_id = config.require("controller").rstrip("/"), config.require("app")


def read(token: str) -> dict:
    """Return the controller's row of the app; names of its fields are in /api/v1/openapi.json."""
    asked = Request(
        f"{address}/api/v1/apps?search={quote(app_id)}", headers={"Authorization": f"Bearer {token.strip()}"}
    )
    with urlopen(asked, timeout=10) as answer:
        apps = [app for app in json.load(answer)["apps"] if app["app_id"] == app_id]
    if len(apps) != 1:
        raise pulumi.RunError(
            f"{address} shows {len(apps)} apps {app_id}, one is needed: is its backend among --backend?"
        )
    return apps[0]


# What the controller shows is not secret, although the token is.
app = pulumi.Output.unsecret(config.require_secret("token").apply(read))

pulumi.export("state", app["state"])
pulumi.export("reason", app["reason"])
pulumi.export("gpus", app["gpus"])
pulumi.export("seen", app["checked_at"])
