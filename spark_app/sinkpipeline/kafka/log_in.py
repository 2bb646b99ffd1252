"""What a client knows of its log-in: librdkafka tells it to the error callback only, and to no request that waits."""

from __future__ import annotations

from confluent_kafka import KafkaError

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.kafka.connection import MskIam, Oauthbearer, SaslLogIn
from sinkpipeline.kafka.errors import is_refused_log_in, is_refused_token, is_without_token


class LogIn:
    """Remembers what bars a log-in until a request succeeds."""

    def __init__(self, sasl: SaslLogIn | None) -> None:
        self.error: KafkaError | None = None
        self._sasl = sasl
        self._worked = False

    def remember(self, error: KafkaError) -> None:
        """The client's error callback."""
        if self._worked and isinstance(self._sasl, Oauthbearer | MskIam) and is_refused_token(error):
            # Perhaps the token has expired, and there is no other one.
            return
        if is_without_token(error) or is_refused_log_in(error):
            self.error = error

    def forget(self) -> None:
        """A request has succeeded."""
        self.error = None
        self._worked = True

    def outage(self, error: SinkPipelineError) -> SinkPipelineError:
        """The error of who got no answer, and was told nothing."""
        if not isinstance(self._sasl, Oauthbearer):
            return error
        # While an endpoint answers with a 5xx, the client asks again for almost a minute before it tells.
        also = f"{error.remedy}; and that the token endpoint {self._sasl.token_endpoint_url} gives tokens"
        return SinkPipelineError(error.reason, error.message, also)
