// SPDX-License-Identifier: Apache-2.0
// A test is a sentence: TEST(what_must_hold) { CHECK(condition, "context"); }. One program a file.
#pragma once

#include <exception>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using Tests = std::vector<std::pair<const char*, void (*)()>>;

inline Tests& tests() {
  static Tests all;
  return all;
}

#define TEST(sentence)                                                                  \
  static void sentence();                                                               \
  static const auto& registered_##sentence = tests().emplace_back(#sentence, sentence); \
  static void sentence()

/// Ends the test if `condition` does not hold; what follows it is printed then: CHECK(a == b, "seed ", seed).
#define CHECK(condition, ...)                                    \
  if (!(condition)) {                                            \
    std::ostringstream text;                                     \
    text << __FILE__ << ':' << __LINE__ << ": " #condition ". "; \
    print_all(text __VA_OPT__(, ) __VA_ARGS__);                  \
    throw std::logic_error(text.str());                          \
  }

template <typename... Parts>
void print_all(std::ostream& out, const Parts&... parts) {
  ((out << parts), ...);
}

/// Runs `action`, which must throw an `Exception`, and returns it.
template <typename Exception, typename Action>
Exception thrown_by(Action action) {
  try {
    action();
  } catch (const Exception& exception) {
    return exception;
  }
  throw std::logic_error("nothing was thrown");
}

int main() {
  int failures = 0;
  for (const auto& [sentence, test] : tests()) {
    try {
      test();
      std::cout << "passed: " << sentence << std::endl;
    } catch (const std::exception& exception) {
      ++failures;
      std::cout << "FAILED: " << sentence << "\n  " << exception.what() << std::endl;
    }
  }
  return failures == 0 ? 0 : 1;
}
