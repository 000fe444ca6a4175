"""Drives a provider executable through Pulumi's ResourceProvider protocol, in the place of the engine.

Only the protocol lives here: start, call, stop. What a provider should do is in the tests beside it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from concurrent import futures
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc, status_pb2

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""How an unknown text looks on the wire."""

SECRET = "1b47061264138c4ac30d75fd1eb44270"
"""The signature of a secret: {SIGNATURE: SECRET, "value": ...}."""

SIGNATURE = "4dabf18193072939515e22adb298388d"

TIMEOUT_S = 180.0
"""For what is expected to happen. The garbage collector, for one, learns of a new kind within half a minute."""

Properties = dict[str, Any]


def secret(value: Any) -> Properties:
    return {SIGNATURE: SECRET, "value": value}


def is_secret(value: Any) -> bool:
    return isinstance(value, dict) and value.get(SIGNATURE) == SECRET


class RecordingEngine(engine_pb2_grpc.EngineServicer):
    """The engine's side of the conversation: keeps what it is told."""

    def __init__(self) -> None:
        self.messages: list[engine_pb2.LogRequest] = []

    def Log(self, request: engine_pb2.LogRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        self.messages.append(request)
        return empty_pb2.Empty()

    def texts(self) -> list[str]:
        return [message.message for message in self.messages]


class InitFailedError(Exception):
    """The object exists, but the operation on it failed: what Pulumi keeps in its state."""

    def __init__(self, detail: provider_pb2.ErrorResourceInitFailed, message: str) -> None:
        super().__init__(message)
        self.id: str = detail.id
        self.properties: Properties = json_format.MessageToDict(detail.properties)
        self.reasons: list[str] = list(detail.reasons)


@dataclass
class Resource:
    """A resource as the engine's state knows it."""

    urn: str
    id: str
    inputs: Properties
    outputs: Properties


@dataclass
class Difference:
    changes: int
    replaces: list[str]
    detailed: dict[str, int]
    delete_before_replace: bool

    @property
    def is_empty(self) -> bool:
        return self.changes == provider_pb2.DiffResponse.DIFF_NONE


@dataclass
class Provider:
    """One running provider process, connected to a recording engine."""

    process: subprocess.Popen[str]
    stub: provider_pb2_grpc.ResourceProviderStub
    channel: grpc.Channel
    server: grpc.Server
    engine: RecordingEngine
    seeds: int = field(default=0)

    @classmethod
    def start(cls, executable: Path, environment: Mapping[str, str]) -> Provider:
        engine = RecordingEngine()
        server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        process = subprocess.Popen([str(executable), address], stdout=subprocess.PIPE, text=True, env=dict(environment))
        assert process.stdout is not None
        first_line = process.stdout.readline()
        if not first_line.strip().isdigit():
            process.kill()
            process.communicate()
            server.stop(grace=None).wait()
            raise AssertionError(f"{executable} did not print its port but {first_line!r}")
        port = int(first_line)
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        return cls(process, provider_pb2_grpc.ResourceProviderStub(channel), channel, server, engine)

    def stop(self) -> None:
        self.channel.close()
        self.process.terminate()
        try:
            self.process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=15)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.server.stop(grace=None).wait()

    def configure(self, **settings: str) -> None:
        variables = {f"kubernetes:config:{name}": value for name, value in settings.items()}
        self.stub.Configure(
            provider_pb2.ConfigureRequest(
                variables=variables, args=to_struct(settings), acceptSecrets=True, acceptResources=True
            )
        )

    def check(self, urn: str, inputs: Properties, old: Properties | None = None) -> provider_pb2.CheckResponse:
        self.seeds += 1
        request = provider_pb2.CheckRequest(
            urn=urn, news=to_struct(inputs), randomSeed=f"{urn}{self.seeds}".encode().ljust(32)[-32:]
        )
        if old is not None:
            request.olds.CopyFrom(to_struct(old))
        return self.stub.Check(request)

    def checked(self, urn: str, inputs: Properties, old: Properties | None = None) -> Properties:
        response = self.check(urn, inputs, old)
        assert not response.failures, response.failures
        return from_struct(response.inputs)

    def create(self, urn: str, inputs: Properties, *, preview: bool = False, timeout_s: float = TIMEOUT_S) -> Resource:
        checked = self.checked(urn, inputs)
        request = provider_pb2.CreateRequest(urn=urn, properties=to_struct(checked), preview=preview, timeout=timeout_s)
        response = call(self.stub.Create, request)
        return Resource(urn, response.id, checked, from_struct(response.properties))

    def diff(self, resource: Resource, inputs: Properties, ignore: tuple[str, ...] = ()) -> Difference:
        checked = self.checked(resource.urn, inputs, resource.inputs)
        response = self.stub.Diff(
            provider_pb2.DiffRequest(
                id=resource.id, urn=resource.urn, olds=to_struct(resource.outputs), news=to_struct(checked),
                old_inputs=to_struct(resource.inputs), ignoreChanges=ignore,
            )
        )  # fmt: skip
        detailed = {path: change.kind for path, change in response.detailedDiff.items()}
        return Difference(response.changes, list(response.replaces), detailed, response.deleteBeforeReplace)

    def update(
        self, resource: Resource, inputs: Properties, *, preview: bool = False, timeout_s: float = TIMEOUT_S
    ) -> Resource:
        checked = self.checked(resource.urn, inputs, resource.inputs)
        request = provider_pb2.UpdateRequest(
            id=resource.id, urn=resource.urn, olds=to_struct(resource.outputs), news=to_struct(checked),
            old_inputs=to_struct(resource.inputs), preview=preview, timeout=timeout_s,
        )  # fmt: skip
        response = call(self.stub.Update, request)
        return Resource(resource.urn, resource.id, checked, from_struct(response.properties))

    def read(self, resource: Resource) -> Resource | None:
        """Refresh a resource; None when it is gone."""
        request = provider_pb2.ReadRequest(
            id=resource.id, urn=resource.urn, properties=to_struct(resource.outputs), inputs=to_struct(resource.inputs)
        )
        response = call(self.stub.Read, request)
        if not response.id:
            return None
        return Resource(resource.urn, response.id, from_struct(response.inputs), from_struct(response.properties))

    def find(self, urn: str, name: str) -> Resource | None:
        """Read what was not managed before, as an import or a `get` does."""
        return self.read(Resource(urn, name, {}, {}))

    def delete(self, resource: Resource, *, timeout_s: float = TIMEOUT_S) -> None:
        request = provider_pb2.DeleteRequest(
            id=resource.id, urn=resource.urn, properties=to_struct(resource.outputs), timeout=timeout_s
        )
        call(self.stub.Delete, request)

    def cancel(self) -> None:
        self.stub.Cancel(empty_pb2.Empty())

    def diff_config(self, old: Properties, new: Properties) -> Difference:
        urn = "urn:pulumi:dev::contract::pulumi:providers:kubernetes::named"
        request = provider_pb2.DiffRequest(id="x", urn=urn, olds=to_struct(old), news=to_struct(new))
        response = self.stub.DiffConfig(request)
        return Difference(response.changes, list(response.replaces), dict.fromkeys(response.diffs, 0), False)


def call(method: Any, request: Any) -> Any:
    """Call, and raise what the engine would keep as a partial failure as an exception of its own."""
    try:
        return method(request)
    except grpc.RpcError as error:
        partial = provider_pb2.ErrorResourceInitFailed()
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                status = status_pb2.Status.FromString(value)
                if any(detail.Unpack(partial) for detail in status.details):
                    raise InitFailedError(partial, status.message) from error
        raise


def to_struct(properties: Mapping[str, Any]) -> struct_pb2.Struct:
    struct = struct_pb2.Struct()
    struct.update(properties)
    return struct


def from_struct(struct: struct_pb2.Struct) -> Properties:
    return json_format.MessageToDict(struct)
