// SPDX-License-Identifier: MIT OR Apache-2.0

//! The attribute that the kernel has for modules of unit tests.

use proc_macro::TokenStream;

/// Turns the module into one of ordinary tests.
#[proc_macro_attribute]
pub fn kunit_tests(_suite: TokenStream, module: TokenStream) -> TokenStream {
    let Ok(mut tests) = "#[cfg(test)]".parse::<TokenStream>() else {
        return module;
    };
    tests.extend(module);
    tests
}
