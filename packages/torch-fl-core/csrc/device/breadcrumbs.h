// Owns: the operators that were called last, for the messages of errors that an asynchronous device
// reports when it is too late to see who made them. FLAGOS_BREADCRUMBS, off by default.
#pragma once
#include <ATen/core/operator_name.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "export.h"

namespace torch_fl::breadcrumbs {

inline std::atomic<bool> g_on{false};

inline bool on() { return g_on.load(std::memory_order_relaxed); }
FLAGOS_API void set(bool on);

// Both must live as long as the process: nothing is copied. Any thread; no lock.
void drop(const c10::OperatorName& name, const char* route);

// "aten::mm -> boxing", newest first; with the thread where there are several.
FLAGOS_API std::vector<std::string> last_calls(size_t count);

// Throws `error` again. What the device says of itself, and nothing else, gets the operators that were
// called last, or how to have them named.
[[noreturn]] void rethrow(const c10::Error& error);

// What `ask` of the device gives or, explained, throws.
template <class Ask>
auto explained(Ask&& ask) {
  try {
    return std::forward<Ask>(ask)();
  } catch (const c10::AcceleratorError& error) {
    rethrow(error);
  }
}

}  // namespace torch_fl::breadcrumbs
