// Owns: what the dispatching kernel adds to a kernel: one relaxed load and an indirect jump, timed
// against the same call made directly. The same code as routing/operator.h compiles to, alone.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <vector>

using Kernel = long (*)(const long&);

__attribute__((noinline)) long kernel(const long& x) { return x * 3 + 1; }
std::atomic<Kernel> entry{&kernel};
__attribute__((noinline)) long dispatch(const long& x) {
  return entry.load(std::memory_order_relaxed)(x);
}

template <long (*kFunction)(const long&)>
double nanoseconds(long calls) {
  long x = 1;
  const auto start = std::chrono::steady_clock::now();
  for (long i = 0; i < calls; ++i) x = kFunction(x) & 1023;
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  volatile long sink = x;
  (void)sink;
  return time.count() / calls;
}

int main() {
  std::vector<double> differences;
  for (int i = 0; i < 301; ++i) {
    const double direct = nanoseconds<&kernel>(100000);
    differences.push_back(nanoseconds<&dispatch>(100000) - direct);
  }
  std::nth_element(differences.begin(), differences.begin() + 150, differences.end());
  std::printf("%f\n", differences[150]);
}
