"""What spark-submit writes where the API server refuses the driver's pod: Kubeflow's operator stores all of it.

Its shape is that of Spark 4 with fabric8's client: a log with times, the exception with the API server's sentence and
its whole Status, the stack, the log's last lines.
"""

from __future__ import annotations

import datetime as dt
import http
from typing import Any

Object = dict[str, Any]

_STACK = """\
\tat io.fabric8.kubernetes.client.dsl.internal.OperationSupport.requestFailure(OperationSupport.java:642)
\tat io.fabric8.kubernetes.client.dsl.internal.OperationSupport.assertResponseCode(OperationSupport.java:582)
\tat io.fabric8.kubernetes.client.dsl.internal.OperationSupport.handleResponse(OperationSupport.java:549)
\tat io.fabric8.kubernetes.client.dsl.internal.BaseOperation.create(BaseOperation.java:97)
\tat org.apache.spark.deploy.k8s.submit.Client.run(KubernetesClientApplication.scala:153)
\tat org.apache.spark.deploy.k8s.submit.KubernetesClientApplication.run(KubernetesClientApplication.scala:235)
\tat org.apache.spark.deploy.SparkSubmit.org$apache$spark$deploy$SparkSubmit$$runMain(SparkSubmit.scala:1027)
\tat org.apache.spark.deploy.SparkSubmit$.main(SparkSubmit.scala:1137)
\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)"""


def stderr(app: Object, code: int, message: str) -> str:
    """Of a request that was answered with that code and that sentence."""
    namespace, name = app["metadata"]["namespace"], app["metadata"]["name"]
    now = dt.datetime.now(dt.timezone.utc)
    at = f"{now:%y/%m/%d %H:%M:%S}"
    status = (
        f"Status(apiVersion=v1, code={code}, details=StatusDetails(causes=[], group=null, kind=pods, "
        f"name={name}-driver, retryAfterSeconds=null, uid=null, additionalProperties={{}}), kind=Status, "
        f"message={message}, metadata=ListMeta(_continue=null, remainingItemCount=null, resourceVersion=null, "
        f"selfLink=null, additionalProperties={{}}), reason={http.HTTPStatus(code).phrase}, status=Failure, "
        "additionalProperties={})"
    )
    # As long as on a node: what matters begins after more than a status has room for.
    starting = [
        f"{at} WARN NativeCodeLoader: Unable to load native-hadoop library for your platform...",
        f"{at} INFO SparkKubernetesClientFactory: Auto-configuring K8S client using current context",
        *(f"{at} INFO DriverFeatureStep: not specified: {'x' * 80} ({now:%f}, {number})" for number in range(10)),
    ]
    thrown = (
        'Exception in thread "main" io.fabric8.kubernetes.client.KubernetesClientException: Failure executing: '
        f"POST at: https://10.96.0.1:443/api/v1/namespaces/{namespace}/pods. Message: {message}. "
        f"Received status: {status}."
    )
    ends = [
        f"{at} INFO ShutdownHookManager: Shutdown hook called",
        f"{at} INFO ShutdownHookManager: Deleting directory /tmp/spark-{now:%f}",
    ]
    return "\n".join([*starting, thrown, _STACK, *ends]) + "\n"
