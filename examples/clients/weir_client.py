"""Asks Weir over its own API, weir.v1.RateLimiter. With `make run` in another terminal:

    pip install grpcio grpcio-tools
    mkdir -p /tmp/weir
    python -m grpc_tools.protoc -I proto --python_out=/tmp/weir --grpc_python_out=/tmp/weir \\
        weir/v1/rate_limiter.proto
    PYTHONPATH=/tmp/weir python examples/clients/weir_client.py ann

By the rules of examples/config/default.yaml the sixth within a quarter of an hour is refused.
"""

import os
import sys

import grpc
from weir.v1 import rate_limiter_pb2 as weir
from weir.v1 import rate_limiter_pb2_grpc as weir_grpc

with grpc.insecure_channel(os.environ.get("WEIR", "127.0.0.1:8081")) as channel:
    limiter = weir_grpc.RateLimiterStub(channel)
    who = weir.Descriptor(endpoint="/v1/login", user=sys.argv[1])
    for _ in range(6):
        try:
            answer = limiter.ShouldRateLimit(
                weir.ShouldRateLimitRequest(descriptor=who), timeout=0.5
            )
        except grpc.RpcError as error:
            # Weir itself is away. Letting pass is our choice here; refusing is the other one.
            print("not limited:", error.code().name)
            continue
        if answer.allowed:
            print("allowed")
        else:
            print("refused by", answer.limit_name, "for", answer.retry_after.ToSeconds(), "s")
