// Text from a trained model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "char_gpt/data.h"
#include "char_gpt/model.h"

namespace char_gpt {

/// `batch` texts of `length` characters each, drawn with a generator of their
/// own. The model always sees [batch, block] tokens, as in training: the texts
/// so far, cropped or filled up, so that a compiled model needs no new graph.
/// `shown` is told how many characters are done.
std::vector<std::string> sample(
    Gpt& model,
    const Vocabulary& vocabulary,
    int64_t batch,
    int64_t length,
    uint64_t seed,
    const std::function<void(int64_t)>& shown);

/// What of a text can be shown: other bytes than printable ASCII, line feed,
/// tab and whole UTF-8 sequences become '?'.
std::string printable(const std::string& text);

} // namespace char_gpt
