"""A Ray cluster of two machines on one, for tests: a head without processors and two nodes with one each, every node
with a cache folder of its own below the folder that is given. Prints the address. On standard input, `end N` ends node
N without warning, `add` adds one; the end of the input ends the cluster."""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

MEMORY = 100 << 20


def main() -> None:
    """The cluster's life."""
    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": MEMORY}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes = [_add(cluster, number) for number in range(2)]
    print(f"address {cluster.address}", flush=True)
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        if word == "end":
            cluster.remove_node(nodes[int(number)], allow_graceful=False)
            print(f"ended {number}", flush=True)
        elif word == "add":
            nodes.append(_add(cluster, len(nodes)))
            print(f"added {len(nodes) - 1}", flush=True)
    cluster.shutdown()


def _add(cluster: Cluster, number: int) -> object:
    cache = f"{sys.argv[1]}/node-{number}"
    return cluster.add_node(
        num_cpus=1, object_store_memory=MEMORY, env_vars={"XDG_CACHE_HOME": cache, "XTX_TEST_NODE": str(number)}
    )


if __name__ == "__main__":
    main()
