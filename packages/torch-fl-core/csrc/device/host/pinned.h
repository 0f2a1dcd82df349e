// Owns: pinned memory of the host runtime. Every page is as good as pinned here; what users need is
// that is_pinned() tells the truth about who made it, and statistics.
#pragma once
#include <ATen/core/CachingHostAllocator.h>

#include "device/host/pool.h"

namespace torch_fl::host {

class PinnedAllocator final : public at::HostAllocator {
 public:
  explicit PinnedAllocator(size_t limit);

  c10::DataPtr allocate(size_t nbytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t count) const override;
  // Copies are complete when they return, so a block may be reused at once.
  bool record_event(void* data, void* context, c10::Stream stream) override;
  void empty_cache() override;
  at::HostStats get_stats() override;
  void reset_accumulated_stats() override;
  void reset_peak_stats() override;

  bool owns(const void* data) const;
  Pool& pool() { return pool_; }

 private:
  Pool pool_;
};

}  // namespace torch_fl::host
