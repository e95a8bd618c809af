//! State that a higher file attaches to an endpoint or a connection. It lives as long as what it is attached to, and
//! these do not know its type.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use crate::engine::runtime::sync::Mutex;

/// At most one value of each type.
#[derive(Default)]
pub(crate) struct Attachments(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Attachments {
    /// The value of this type. The first call creates it.
    pub(crate) fn get<T: Any + Default + Send + Sync>(&self) -> Arc<T> {
        let mut all = self.0.lock();
        let value = all
            .entry(TypeId::of::<T>())
            .or_insert_with(|| Arc::<T>::default());
        // Cannot fail: the key is the type.
        Arc::clone(value).downcast().unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.lock());
        // Outside the lock: the values may end tasks.
        drop(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_ask_for_a_type_share_one_value_until_it_is_cleared() {
        let attachments = Attachments::default();
        assert!(attachments.is_empty());
        let text = attachments.get::<String>();
        let list = attachments.get::<Vec<u8>>();
        assert!(Arc::ptr_eq(&text, &attachments.get::<String>()));
        assert!(Arc::ptr_eq(&list, &attachments.get::<Vec<u8>>()));
        assert!(!attachments.is_empty());
        attachments.clear();
        assert!(attachments.is_empty());
        assert!(!Arc::ptr_eq(&text, &attachments.get::<String>()));
    }
}
