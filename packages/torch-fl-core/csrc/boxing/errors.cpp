// Owns: error texts from below, put into the names the caller knows. Runs on the error path only.
#include <cctype>
#include <string>
#include <typeinfo>

#include "boxing/relabeling.h"
#include "device/breadcrumbs.h"

namespace torch_fl {
namespace {

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// Every `word` that stands alone in `text` replaced, together with an index behind it unless that
// is to stay.
std::string replace_device(const std::string& text, const std::string& word,
                           const std::string& replacement, bool keep_index) {
  std::string result;
  size_t at = 0;
  for (size_t hit = text.find(word); hit != std::string::npos; hit = text.find(word, at)) {
    size_t end = hit + word.size();
    // (Not a part of an address either, nor of a name with dots or hyphens.)
    const bool starts = hit == 0 || (!in_word(text[hit - 1]) && text[hit - 1] != '.' &&
                                     text[hit - 1] != '/' && text[hit - 1] != '-');
    const bool ends = end == text.size() ||
                      (!in_word(text[end]) && text[end] != '/' && text[end] != '-' &&
                       (text[end] != '.' || end + 1 == text.size() || !in_word(text[end + 1])));
    result.append(text, at, hit - at);
    if (starts && ends) {
      if (!keep_index && end + 1 < text.size() && text[end] == ':' &&
          std::isdigit(static_cast<unsigned char>(text[end + 1])) != 0) {
        for (++end;
             end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0;) {
          ++end;
        }
      }
      result += replacement;
    } else {
      result.append(text, hit, word.size());
    }
    at = end;
  }
  return result.append(text, at, std::string::npos);
}

template <class... Types>
[[noreturn]] void throw_as(const c10::Error& like, const std::string& message) {
  // The dynamic type decides which Python exception the caller gets.
  (
      [&] {
        if (typeid(like) == typeid(Types)) throw Types(message, like.backtrace(), like.caller());
      }(),
      ...);
  throw c10::Error(message, like.backtrace(), like.caller());
}

}  // namespace

void Relabeling::rethrow(const c10::Error& error) {
  write_back(/*failed=*/true);
  if (typeid(error) == typeid(c10::AcceleratorError)) breadcrumbs::rethrow(error);
  // With a tensor of the target's own type among the arguments, the name may be the caller's.
  if (devices_.has_foreign(target().type)) throw;
  // flagos:i is the target's device i; a target without indices has one name for all of them.
  const bool indexed = target().indexed;
  const auto label = indexed ? c10::DeviceTypeName(kFlagos, /*lower_case=*/true)
                             : c10::Device(kFlagos, device()).str();
  const auto name = c10::DeviceTypeName(target().type, /*lower_case=*/true);
  const auto message = replace_device(error.msg(), name, label, /*keep_index=*/indexed);
  if (message == error.msg()) throw;
  throw_as<c10::IndexError, c10::ValueError, c10::TypeError, c10::NotImplementedError,
           c10::LinAlgError, c10::OutOfMemoryError, c10::EnforceFiniteError, c10::BufferError,
           c10::SyntaxError, c10::DistError, c10::DistBackendError, c10::DistStoreError,
           c10::DistNetworkError, c10::DistQueueEmptyError>(error, message);
}

}  // namespace torch_fl
