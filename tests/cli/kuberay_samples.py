"""The containers of KubeRay's history server in its sample manifests of 2026-08-19, and its flags, as facts.

From `historyserver/config/` and `historyserver/cmd/` of the repository ray-project/kuberay, commit feeaf72f. The values
that a field of the pod gives are those of the namespace `default` and the cluster `demo`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Sample(NamedTuple):
    """One container. Its image has the program as entry point."""

    manifest: str
    name: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    variables: Mapping[str, str]

    @property
    def title(self) -> str:
        role = self.variables.get("RAY_ROLE", "")
        return f"{self.manifest}-{self.name}{f'-{role.lower()}' if role else ''}"


_MINIO = {
    "STORAGE_BACKEND": "s3",
    "S3_BUCKET": "ray-historyserver",
    "S3_ENDPOINT": "minio-service.minio-dev:9000",
    "S3_REGION": "test",
    "S3FORCE_PATH_STYLE": "true",
    "S3DISABLE_SSL": "true",
    "AWS_ACCESS_KEY_ID": "minioadmin",
    "AWS_SECRET_ACCESS_KEY": "minioadmin",
    "AWS_SESSION_TOKEN": "",
}
_AZURE = {
    "AZURE_STORAGE_CONTAINER": "ray-historyserver",
    "AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=a2V5;"
    "BlobEndpoint=http://azurite-service.azurite-dev.svc.cluster.local:10000/devstoreaccount1;",
}
_GCS = {"STORAGE_BACKEND": "gcs", "GCS_BUCKET": "ray-historyserver"}
_OSS = {
    "STORAGE_BACKEND": "aliyunoss",
    "OSS_BUCKET": "ray-historyserver",
    "OSS_REGION": "cn-hangzhou",
    "OSS_ENDPOINT": "oss-cn-hangzhou-internal.aliyuncs.com",
}
_TOKEN = {"RAY_AUTH_MODE": "token", "RAY_ENABLE_K8S_TOKEN_AUTH": "true"}
_NODE = {
    "POD_IP": "10.0.0.7",
    "RAY_CLUSTER_NAME": "demo",
    "RAY_CLUSTER_NAMESPACE": "default",
    "FQ_RAY_IP": "demo-head-svc.default.svc.cluster.local",
    "RAY_TMP_ROOT": "/tmp/ray",
}
_HEAD_ONLY = {"FQ_RAY_IP": "localhost"}
_DASHBOARD = {"RAY_DASHBOARD_ADDRESS": "http://localhost:8265"}


def _collectors(manifest: str, *parts: Mapping[str, str], head: Mapping[str, str] | None = None) -> list[Sample]:
    """A collector in the pods of the head, and one in those of the workers; `head` are variables of the first only."""
    variables = {name: value for part in (_NODE, *parts) for name, value in part.items()}
    of_head = {**variables, **(head or {}), "RAY_ROLE": "Head"}
    return [
        Sample(manifest, "collector", (), (), of_head),
        Sample(manifest, "collector", (), (), {**variables, "RAY_ROLE": "Worker"}),
    ]


def _job(name: str, kind: str = "rayjob") -> Mapping[str, str]:
    return {"OWNER_KIND": kind, "OWNER_NAME": name}


_CACHE = ("--session-cache-max-memory=8Gi",)

SERVERS = [
    Sample("historyserver.yaml", "historyserver", (), _CACHE, _MINIO),
    Sample("historyserver-gcs.yaml", "historyserver", (), _CACHE, _GCS),
    Sample(
        "historyserver-azureblob.yaml",
        "historyserver",
        ("historyserver", "--storage-backend=azureblob"),
        _CACHE,
        _AZURE,
    ),
]

COLLECTORS = [
    *_collectors("raycluster.yaml", _MINIO),
    *_collectors("raycluster-gcs.yaml", _GCS, {"EVENTS_PORT": "8084"}),
    *_collectors("raycluster-azureblob.yaml", _AZURE, {"STORAGE_BACKEND": "azureblob"}),
    *_collectors("raycluster-aliyunoss.yaml", _OSS),
    *_collectors("raycluster-kubernetes-auth.yaml", _MINIO, _TOKEN, head=_DASHBOARD),
    *_collectors("rayjob.yaml", _MINIO, _job("rayjob-historyserver")),
    *_collectors("rayjob-gcs.yaml", _GCS, _job("rayjob-historyserver-gcs"), {"EVENTS_PORT": "8084"}),
    *_collectors(
        "rayjob-azureblob.yaml", _AZURE, _job("rayjob-historyserver-azureblob"), {"STORAGE_BACKEND": "azureblob"}
    ),
    *_collectors("rayjob-aliyunoss.yaml", _OSS, _job("rayjob-historyserver-aliyunoss")),
    *_collectors(
        "rayjob-kubernetes-auth.yaml", _MINIO, _TOKEN, _job("rayjob-historyserver-kubernetes-auth"), head=_DASHBOARD
    ),
    _collectors("rayservice.yaml", _MINIO, _job("rayservice-historyserver", "RayService"), _HEAD_ONLY)[0],
    _collectors("ray-data.yaml", _MINIO, _job("rayjob-ray-data", "RayJob"), _HEAD_ONLY)[0],
]

INJECTED = [
    Sample(f"operator, {role} group", "ray-history-collector", (), (), {**_NODE, **_MINIO, "RAY_ROLE": role} | extra)
    for role in ("Head", "Worker")
    for extra in (
        {"EVENTS_PORT": "8084", "OWNER_KIND": "RayJob", "OWNER_NAME": "nightly"},
        {"EVENTS_PORT": "8084", "RAY_DASHBOARD_ADDRESS": "http://localhost:8265"},
    )
]
"""What KubeRay's operator adds to the pods of a cluster with `historyServerOptions`."""

COLLECTOR_FLAGS = (
    "--enable-event-collector",
    "--enable-log-collector",
    "--role=Head",
    "--storage-backend=s3",
    "--ray-cluster-name=demo",
    "--ray-cluster-namespace=default",
    "--storage-root-dir=log",
    "--log-batching=1000",
    "--events-port=8084",
    "--storage-backend-config-path=/etc/config.json",
    "--push-interval=1m",
    "--owner-kind=rayjob",
    "--owner-name=nightly",
    "--ray-dashboard-address=http://localhost:8265",
    "--event-data-dir=/tmp/ray/event-data",
    "--event-rotation-interval=5m",
    "--event-max-file-size-mb=100",
    "--event-max-disk-mb=200",
    "--event-compression-enabled=false",
    # Former names, and that of a published talk.
    "--runtime-class-name=s3",
    "--runtime-class-config-path=/etc/config.json",
    "--ray-root-dir=log",
    "--ray-cluster-id=default",
    "--ray-head",
)
SERVER_FLAGS = (
    "--storage-backend=s3",
    "--storage-root-dir=log",
    "--kubeconfigs=",
    "--dashboard-dir=/dashboard",
    "--storage-backend-config-path=/etc/config.json",
    "--use-kubernetes-proxy",
    "--use-auth-token-mode",
    "--kube-api-qps=50",
    "--kube-api-burst=100",
    "--session-process-timeout=2m",
    "--session-cache-size=10",
    "--session-cache-max-memory=1Gi",
    "--session-cache-ttl=1h",
    # Newer than those manifests: 1.7.1, and a proposal.
    "--enable-live-clusters",
    "--enable-auth",
    # Former names.
    "--runtime-class-name=s3",
    "--runtime-class-config-path=/etc/config.json",
    "--ray-root-dir=log",
)
