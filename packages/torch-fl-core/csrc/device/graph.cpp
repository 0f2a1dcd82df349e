// Owns: torch.accelerator.Graph for flagos: the target's graphs, where it has some. A graph records
// the current stream, which flagos and its target share.
#if __has_include(<ATen/core/GraphImplInterface.h>)  // torch 2.12 and newer
#include <ATen/core/GraphImplInterface.h>
#include <c10/util/Exception.h>

#include "device/runtime.h"

namespace torch_fl {
namespace {

std::unique_ptr<at::GraphImplInterface> targets_graph(const at::GraphImplArgs& args) {
  const auto target = runtime().target_type();
  TORCH_CHECK_NOT_IMPLEMENTED(
      target != c10::DeviceType::CPU,
      "The host backend has no graphs: work is complete when the call that gives it returns, so "
      "there is nothing to record. Call the function itself instead of capturing and replaying "
      "it.");
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::has_graph_impl(target), "This PyTorch has no torch.accelerator.Graph for ",
      c10::DeviceTypeName(target, /*lower_case=*/true),
      ", the device that flagos stands on. Try torch.flagos.CUDAGraph, which asks the backend's "
      "own module for a graph.");
  return at::create_graph_impl(target, args);
}

struct Graph final : at::GraphImplInterface {
  explicit Graph(const at::GraphImplArgs& args) : graph_(targets_graph(args)) {}

  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode mode) override {
    graph_->capture_begin(pool, mode);
  }
  void capture_end() override { graph_->capture_end(); }
  void instantiate() override { graph_->instantiate(); }
  void replay() override { graph_->replay(); }
  void reset() override { graph_->reset(); }
  at::MempoolId_t pool() const override { return graph_->pool(); }
  void enable_debug_mode() override { graph_->enable_debug_mode(); }
  void debug_dump(const std::string& path) override { graph_->debug_dump(path); }

 private:
  std::unique_ptr<at::GraphImplInterface> graph_;
};

}  // namespace
}  // namespace torch_fl

// The key is the device's name in capitals.
namespace at {
REGISTER_GRAPH_IMPL(FLAGOS, torch_fl::Graph)
}  // namespace at
#endif
