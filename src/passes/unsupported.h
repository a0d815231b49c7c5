// What a pass throws when a graph can't be compiled: the caller runs the code
// eagerly and gives the message as the reason.
#pragma once

#include <stdexcept>

namespace temper::passes {

/// `what()` names the operator or value and says why, as the middle of a
/// sentence: "aten::resize_ changes sizes or storage of a tensor".
class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

} // namespace temper::passes
