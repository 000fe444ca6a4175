"""The Kubernetes kinds that this package reads or writes, one constant each."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind with its names in manifests and API paths."""

    group: str
    """API group; empty for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    installed_by: str = field(default="", compare=False)
    """Name of the software that defines the kind, for messages; empty if unknown."""

    @property
    def api_version(self) -> str:
        """Return `group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Return the name by which kubectl finds the kind."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


POD = Kind(group="", version="v1", kind="Pod", plural="pods")
SERVICE = Kind(group="", version="v1", kind="Service", plural="services")
JOB = Kind(group="batch", version="v1", kind="Job", plural="jobs")
EVENT = Kind(group="", version="v1", kind="Event", plural="events")
SECRET = Kind(group="", version="v1", kind="Secret", plural="secrets")
NAMESPACE = Kind(group="", version="v1", kind="Namespace", plural="namespaces", namespaced=False)
SERVICE_ACCOUNT = Kind(group="", version="v1", kind="ServiceAccount", plural="serviceaccounts")
PRIORITY_CLASS = Kind(
    group="scheduling.k8s.io", version="v1", kind="PriorityClass", plural="priorityclasses", namespaced=False
)
ACCESS_REVIEW = Kind(
    group="authorization.k8s.io",
    version="v1",
    kind="SelfSubjectAccessReview",
    plural="selfsubjectaccessreviews",
    namespaced=False,
)
LEASE = Kind(group="coordination.k8s.io", version="v1", kind="Lease", plural="leases")
NODE = Kind(group="", version="v1", kind="Node", plural="nodes", namespaced=False)
VALIDATING_WEBHOOK = Kind(
    group="admissionregistration.k8s.io",
    version="v1",
    kind="ValidatingWebhookConfiguration",
    plural="validatingwebhookconfigurations",
    namespaced=False,
)
