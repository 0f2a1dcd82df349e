"""Owns: PyTorch Geometric: graph convolutions train on a random graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_mean_pool

from ci.ecosystem.harness import case, compare, main, train


def _graph(seed: int = 1, nodes: int = 20) -> Data:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, nodes, (2, 60), generator=generator)
    features = torch.randn(nodes, 8, generator=generator)
    labels = torch.randint(0, 3, (nodes,), generator=generator)
    return Data(x=features, edge_index=edges, y=labels)


class Net(nn.Module):
    """Two convolutions of one kind."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.first, self.second = kind(8, 16), kind(16, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        hidden = F.dropout(self.first(x, edges).relu(), 0.3, self.training)
        result: torch.Tensor = self.second(hidden, edges)
        return result


def _gin(inputs: int, outputs: int) -> Any:
    return GINConv(
        nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))
    )


def _add(name: str, kind: Any) -> None:
    @case(f"{name}: train and evaluate")
    def learn() -> None:
        def run(device: str) -> Any:
            torch.manual_seed(0)
            model, graph = Net(kind).to(device), _graph().to(device)
            torch.manual_seed(1)
            loss = lambda: F.cross_entropy(model(graph.x, graph.edge_index), graph.y)  # noqa: E731
            results = train(model, loss)
            model.eval()
            return [*results, model(graph.x, graph.edge_index)]

        compare(run, 1e-3, 1e-4)


for _name, _kind in (("GCN", GCNConv), ("GraphSAGE", SAGEConv), ("GAT", GATConv), ("GIN", _gin)):
    _add(_name, _kind)


@case("batches of graphs, pooled")
def pooled() -> None:
    def run(device: str) -> Any:
        torch.manual_seed(0)
        model = Net(GCNConv).to(device).eval()
        loader = DataLoader([_graph(seed) for seed in range(4)], batch_size=2)
        results = []
        for batch in loader:
            assert isinstance(batch, Batch)
            moved = batch.to(device)
            results.append(global_mean_pool(model(moved.x, moved.edge_index), moved.batch))
        return results

    compare(run)


if __name__ == "__main__":
    main(["torch-geometric"])
