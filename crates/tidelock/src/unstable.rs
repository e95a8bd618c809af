//! Makes functions public for authors of stores, and for nobody else.

/// Functions that only a store calls: public with the feature `unstable-backend`, private to the crate without it.
macro_rules! for_stores {
    ($($(#[$attribute:meta])* fn $name:ident($($parameters:tt)*) -> $output:ty $body:block)+) => {
        $(
            #[cfg(feature = "unstable-backend")]
            $(#[$attribute])*
            pub fn $name($($parameters)*) -> $output $body

            #[cfg(not(feature = "unstable-backend"))]
            $(#[$attribute])*
            pub(crate) fn $name($($parameters)*) -> $output $body
        )+
    };
}

pub(crate) use for_stores;
