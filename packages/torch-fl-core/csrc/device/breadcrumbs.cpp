// Owns: the ring of the last calls, and the text that is made of it.
#include "device/breadcrumbs.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

namespace torch_fl::breadcrumbs {
namespace {

constexpr uint64_t kKept = 256;  // a power of two
constexpr uint64_t kShown = 16;
constexpr std::string_view kMarker = "\nflagos: ";

// A reader may meet a writer: then a line names a call that is newer than its place says.
struct Crumb {
  std::atomic<const c10::OperatorName*> name{nullptr};
  std::atomic<const char*> route{nullptr};
  std::atomic<uint32_t> thread{0};
};
std::array<Crumb, kKept> g_ring;
std::atomic<uint64_t> g_next{0};
std::atomic<uint32_t> g_threads{0};

uint32_t this_thread() {
  thread_local const uint32_t kNumber = g_threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return kNumber;
}

std::string explanation() {
  std::string text(kMarker);
  if (!on()) {
    return text +
           "the device says this of something that it was given before. FLAGOS_BREADCRUMBS=1 names "
           "the last operators here.";
  }
  text += "the operators that were called last, newest first:";
  for (const auto& call : last_calls(kShown)) text += "\n  " + call;
  return text;
}

}  // namespace

void set(bool on) { g_on = on; }

std::vector<std::string> last_calls(size_t count) {
  std::vector<std::string> calls;
  const uint64_t next = g_next.load(std::memory_order_acquire);
  for (uint64_t back = 1; back <= std::min({next, uint64_t{count}, kKept}); ++back) {
    const Crumb& crumb = g_ring[(next - back) % kKept];
    const auto* name = crumb.name.load(std::memory_order_acquire);
    if (name == nullptr) break;
    auto& call = calls.emplace_back(c10::toString(*name) + " -> " +
                                    crumb.route.load(std::memory_order_relaxed));
    if (g_threads.load(std::memory_order_relaxed) > 1) {
      call += " (thread " + std::to_string(crumb.thread.load(std::memory_order_relaxed)) + ')';
    }
  }
  return calls;
}

void drop(const c10::OperatorName& name, const char* route) {
  Crumb& crumb = g_ring[g_next.fetch_add(1, std::memory_order_acq_rel) % kKept];
  crumb.route.store(route, std::memory_order_relaxed);
  crumb.thread.store(this_thread(), std::memory_order_relaxed);
  crumb.name.store(&name, std::memory_order_release);
}

void rethrow(const c10::Error& error) {
  const auto* fault = dynamic_cast<const c10::AcceleratorError*>(&error);
  if (fault == nullptr || fault->msg().find(kMarker) != std::string::npos) throw;
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                              fault->get_error_code(), fault->msg() + explanation());
}

}  // namespace torch_fl::breadcrumbs
