"""Owns: tests of allocations that fail where two devices have to do with each other."""

from __future__ import annotations

from pathlib import Path

from children import output_of_child

HERE = Path(__file__).parent


def test_each_allocation_of_work_between_devices_fails() -> None:
    output = output_of_child(
        f"""
        import sys
        sys.path[:0] = {[str(HERE), str(HERE.parent)]!r}
        import torch, torch_fl
        from out_of_memory import assert_right, sweep
        from torch_fl.testing import faults
        torch.set_num_threads(1)
        A, B = "flagos:0", "flagos:1"

        def trained():
            first, second = torch.nn.Linear(5, 7, device=A), torch.nn.Linear(7, 3, device=B)
            y = second(first(torch.ones(2, 5, device=A)).to(B)).sum()
            y.backward()
            torch.nn.utils.clip_grad_norm_([*first.parameters(), *second.parameters()], 0.1)
            torch.optim.AdamW([*first.parameters(), *second.parameters()], foreach=True).step()

        def foreach():
            tensors = [torch.ones(3, device=A), torch.ones(4, device=B)]
            torch._foreach_add_(torch._foreach_mul(tensors, 2.0), tensors)

        def copied():
            x = torch.ones(4, 5, device=A)
            return x.t().to(B, torch.float64), torch.empty(5, 4, device=B).copy_(x.t()).to(A)

        def current():
            with torch.flagos.device(1), torch.flagos.Stream(B):
                return torch.ones(3, device="flagos") + torch.ones(3, device=B)

        for work in (trained, foreach, copied, current):
            # Of one device at a time: the error names it, and the other one's memory is back too.
            for device in (0, 1):
                level = [torch.flagos.memory_allocated(index) for index in (0, 1)]
                if work is current and device == 0:
                    continue
                print(work.__name__, device, sweep(work, device=device))
                assert torch.flagos.current_device() == 0
                assert [torch.flagos.memory_allocated(index) for index in (0, 1)] == level

        with faults.failing_allocation(1, times=None, device=B) as allocations:
            kept = torch.ones(3, device=A) * 2
            try:
                kept.to(B)
            except torch.OutOfMemoryError as error:
                assert_right(error, 1)
            else:
                raise AssertionError("was not refused")
            assert kept.to(A).sum().item() == 6
        assert allocations.failed == 1
        """,
        FLAGOS_HOST_DEVICES="2",
    )
    failed = [int(line.split()[-1]) for line in output.splitlines()]
    assert len(failed) == 7
    assert min(failed) >= 2
