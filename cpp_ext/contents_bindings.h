// SPDX-License-Identifier: Apache-2.0
// IndexContents as two dictionaries: what holds for the stream, and columns.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "index_contents.h"
#include "python_column.h"

namespace sparsevideo {

inline nanobind::bytes bytes_object(const std::vector<std::uint8_t>& bytes) {
  return nanobind::bytes(bytes.data(), bytes.size());
}

inline std::vector<std::uint8_t> bytes_of(nanobind::handle object) {
  const auto bytes = nanobind::cast<nanobind::bytes>(object);
  const auto* data = static_cast<const std::uint8_t*>(bytes.data());
  return {data, data + bytes.size()};
}

inline nanobind::object fact_object(std::int64_t number) { return nanobind::int_(number); }
inline nanobind::object fact_object(const std::string& text) {
  return nanobind::str(text.c_str(), text.size());
}
inline nanobind::object fact_object(const std::vector<std::uint8_t>& bytes) { return bytes_object(bytes); }
inline nanobind::object fact_object(const std::vector<StateEvent>& events) {
  nanobind::list list;
  for (const StateEvent& event : events) {
    list.append(nanobind::make_tuple(event.picture, bytes_object(event.bytes)));
  }
  return list;
}

inline void take_fact(nanobind::handle object, std::int64_t& number) {
  number = nanobind::cast<std::int64_t>(object);
}
inline void take_fact(nanobind::handle object, std::string& text) {
  text = nanobind::cast<std::string>(object);
}
inline void take_fact(nanobind::handle object, std::vector<std::uint8_t>& bytes) { bytes = bytes_of(object); }
inline void take_fact(nanobind::handle object, std::vector<StateEvent>& events) {
  for (const nanobind::handle event : nanobind::cast<nanobind::list>(object)) {
    const auto [picture, bytes] = nanobind::cast<std::pair<std::int32_t, nanobind::bytes>>(event);
    events.push_back({picture, bytes_of(bytes)});
  }
}

inline nanobind::dict facts_of(const IndexContents& contents) {
  nanobind::dict facts;
  visit_facts(contents, [&](const char* name, const auto& fact) { facts[name] = fact_object(fact); });
  return facts;
}

inline nanobind::dict columns_of(const IndexContents& contents) {
  nanobind::dict columns;
  visit_columns(contents, [&]<typename T>(const char* name, const std::vector<T>& values) {
    columns[name] = nanobind::cast(make_column<T>(values, std::identity{}), nanobind::rv_policy::move);
  });
  return columns;
}

/// Values that are missing or of another type are an Error(kIndex): they come out of a file.
inline IndexContents make_contents(const nanobind::dict& facts, const nanobind::dict& columns) {
  IndexContents contents;
  const auto take = [](const nanobind::dict& from, const char* name, const auto& convert) {
    try {
      convert(nanobind::object(from[name]));
    } catch (const std::exception&) {  // a KeyError, or a cast that failed
      throw Error(ErrorKind::kIndex, std::string(name) + " is missing or of another type");
    }
  };
  visit_facts(contents, [&](const char* name, auto& fact) {
    take(facts, name, [&](const nanobind::object& object) { take_fact(object, fact); });
  });
  visit_columns(contents, [&]<typename T>(const char* name, std::vector<T>& values) {
    take(columns, name, [&](const nanobind::object& object) {
      const auto array = nanobind::cast<
          nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>>(object,
                                                                                                    false);
      values.assign(array.data(), array.data() + array.size());
    });
  });
  return contents;
}

inline void bind_contents(const nanobind::module_& m) {
  nanobind::class_<IndexContents>(m, "IndexContents")
      .def(
          "__init__",
          [](IndexContents* self, const nanobind::dict& facts, const nanobind::dict& columns) {
            new (self) IndexContents(make_contents(facts, columns));
          },
          nanobind::arg("facts"), nanobind::arg("columns"),
          nanobind::sig("def __init__(self, facts: dict[str, typing.Any], columns: dict[str, "
                        "NDArray[typing.Any]]) -> None"))
      .def_prop_ro("facts", &facts_of,
                   nanobind::for_getter(nanobind::sig("def facts(self) -> dict[str, typing.Any]")))
      .def_prop_ro(
          "columns", &columns_of,
          nanobind::for_getter(nanobind::sig("def columns(self) -> dict[str, NDArray[typing.Any]]")));
}

}  // namespace sparsevideo
