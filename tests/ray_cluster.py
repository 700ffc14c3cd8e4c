"""A Ray cluster of two machines on one, for tests: a head without processors and two nodes with one each. Prints the
address; `end N` on standard input ends node N without warning; the end of the input ends the cluster."""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster


def main() -> None:
    """The cluster's life."""
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=100 << 20, wait=True) for _ in range(2)]
    print(f"address {cluster.address}", flush=True)
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        if word == "end":
            cluster.remove_node(nodes[int(number)], allow_graceful=False)
            print(f"ended {number}", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
