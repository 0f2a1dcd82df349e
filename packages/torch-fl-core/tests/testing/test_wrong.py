"""Owns: tests that operators made wrong on purpose are wrong, while they are meant to be."""

from __future__ import annotations

from children import output_of_child


def test_wrong_operators_are_wrong_while_active_only() -> None:
    # In a process of its own: the override is process-wide.
    output = output_of_child("""
        import torch
        from torch_fl.testing.harness.wrong import Wrong

        def raised():
            try:
                torch.ones(2) + torch.ones(3)
            except RuntimeError as error:
                return str(error)

        def outcomes():
            x, y = torch.ones(2), torch.ones(2)
            flag = torch.tensor(False)
            weight = torch.ones(1, requires_grad=True)
            (weight * 2 + weight * 3).backward()
            many = [torch.ones(2), torch.ones(2)]
            torch._foreach_add_(many, 1.0)
            return [
                (x + y)[0].item(),
                (x + 1)[0].item(),
                x.clone().add_(y)[0].item(),
                torch.add(x, y, out=torch.empty(2))[0].item(),
                (flag + flag).item(),
                weight.grad.item(),
                many[1][0].item(),
                raised(),
            ]

        right = outcomes()
        wrong = Wrong("cpu", ("add.Tensor", "add_.Tensor", "add.out", "_foreach_add_.Scalar"))
        assert outcomes() == right, outcomes()
        with wrong.during():
            seen = outcomes()
        assert outcomes() == right, outcomes()
        assert all(a != b for a, b in zip(right, seen)), (right, seen)
        assert seen[0] == right[0] + 1000, seen
        print("seen")
    """)
    assert output.split() == ["seen"]
