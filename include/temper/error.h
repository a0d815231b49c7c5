// What temper throws on its own account.
//
// Exceptions of ATen operators and of the user's own code pass through temper
// unchanged. What temper itself has to say comes as one of these two, both of
// which LibTorch code catches as `c10::Error`.
#pragma once

#include <c10/util/Exception.h>

#include <string>

#include <temper/export.h>

namespace temper {

/// The user can fix this: an unknown option, a model that cannot be compiled
/// as asked. Its message names the subject, what
/// was found, what was expected, and the remedy; it begins with "temper: ".
class TEMPER_API Error : public c10::Error {
 public:
  /// `message` without the leading "temper: ", which is put in front.
  explicit Error(const std::string& message);
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  ~Error() override;
};

/// A bug in temper: no input of a user may lead here. The message begins with
/// "temper: internal error: " and asks for a report.
class TEMPER_API InternalError : public c10::Error {
 public:
  /// `message` without the leading "temper: internal error: ".
  explicit InternalError(const std::string& message);
  InternalError(const InternalError&) = default;
  InternalError& operator=(const InternalError&) = default;
  ~InternalError() override;
};

} // namespace temper
