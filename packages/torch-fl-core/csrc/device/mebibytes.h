// Owns: how a number of bytes is written in messages, as in "1.50 MiB".
#pragma once
#include <cstddef>
#include <string>

namespace torch_fl {

inline std::string mebibytes(size_t bytes) {
  constexpr size_t kMebibyte = size_t{1} << 20;
  const size_t hundredths = bytes % kMebibyte * 100 / kMebibyte;
  return std::to_string(bytes / kMebibyte) + (hundredths < 10 ? ".0" : ".") +
         std::to_string(hundredths) + " MiB";
}

}  // namespace torch_fl
